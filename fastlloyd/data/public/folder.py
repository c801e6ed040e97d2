"""Where public data sets lie; by itself, for the flags need no more to be read."""

DATA_DIR_VARIABLE = "FASTLLOYD_DATA"
"""The variable that names a folder of NAME.csv.gz and NAME.labels.csv.gz files."""
