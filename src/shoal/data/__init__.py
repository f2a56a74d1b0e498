"""What several methods share: rows, blocks, the driver, seeding, checks and the estimators' common base."""
