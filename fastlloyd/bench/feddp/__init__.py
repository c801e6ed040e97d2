"""FedDP-KMeans' tables and figures."""
