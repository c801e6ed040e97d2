"""k-FED: one round, not private; a baseline of FedDP-KMeans and of SecFC."""
