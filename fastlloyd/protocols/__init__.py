"""The protocols, one folder each: pure roles and messages, and a face that ties them to runs, data and reports."""
