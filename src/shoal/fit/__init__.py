"""What all estimators share between `fit` and the fitted attributes."""
