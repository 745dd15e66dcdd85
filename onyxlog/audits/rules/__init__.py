"""The rules for the tables, one module per rule, S1 to S22: values in, violations out. Pure; knows no Spark.

`catalogue` lists them, `check` says what they are made of. docs/explanation/audits.md, "Rules".
"""
