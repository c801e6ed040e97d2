"""The protocols, one folder each: pure roles and messages, and a class that ties them to runs, data and reports."""
