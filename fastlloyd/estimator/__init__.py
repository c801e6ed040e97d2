"""Federated k-means as a scikit-learn estimator, all parties in memory."""
