"""What estimators and models of networks share."""
