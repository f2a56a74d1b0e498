"""K-means estimators and algorithms, one method per file."""
