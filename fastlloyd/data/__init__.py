"""Tables of records: reading, bounds, splits, vertical parts.

===============  ===========================================================================================
`source.py`      opens a place of records; `reading.py` chooses its columns and makes values, chunk by chunk
`table.py`       reads one party's records, once, into a matrix, or a file; `records.py`, records as a run takes them,
                 and which row of the file went into which
`kinds.py`       one rule of types for every reader
`columnar.py`    tables of Arrow types, such as Parquet files; `spreadsheet.py`, a sheet of an Excel workbook
`delimited.py`   comma separated text; `form.py`, how text is written, and one cell as a number
`database.py`    names records in a database; `connection.py` asks it and keeps the rows; `mysql.py` asks MariaDB and
                 MySQL; `asking.py`, what is the same for all
`bounds.py`      public bounds, and the map to [-1, 1]
`categories.py`  a column of text as features of 0 and 1
`findings.py`    what a site should hear about its records
`missing.py`     what becomes of records that lack a value
`merge.py`       all rows of a person as one record
`dataset.py`     a public data set, and how it is dealt out to clients
`vertical.py`    tables that share their records and differ in their columns
`public/*.py`    public sets, as its own map says
===============  ===========================================================================================
"""
