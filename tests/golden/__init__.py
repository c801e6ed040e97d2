"""What small runs of every protocol come to, by version of its results."""
