"""What clusters are: columns of a public file, added up for each cluster in one noisy vector, and ranges from it.

Pure functions. Nothing here sends, draws noise or knows a run.

Source: docs/privacy.md, "Descriptions of clusters".
"""
