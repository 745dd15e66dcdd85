"""Rules as Spark jobs: tables in, violations out, on one machine or on a cluster. Needs pyspark."""
