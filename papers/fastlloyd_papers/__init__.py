"""The papers' tables and figures, made again with ours beside the published ones; a distribution beside fastlloyd.

==================  ====================================================================================================
`command.py`        `fastlloyd bench`, found through the entry point of the group `fastlloyd.commands`
`engine/`           cells that an interrupted benchmark keeps, a quiet machine, charts, tables, where results come from
`fastlloyd/`        FastLloyd, and fastlloyd-plus beside it
`feddp/`            FedDP-KMeans; `secfc/`, SecFC; `vertical_dp/`, `vertical_he/`, the vertical protocols
`compare/`          `fastlloyd compare`: protocols and own methods on own tables
`baselines/`        other private k-means; `utility/`, the league of all of them
`scoreboard/`       every table, figure and claim in one page
`sets/`             the papers' data sets: downloaded and checked, or made of files that others may not hand on
==================  ====================================================================================================
"""
