"""The script that spark-submit runs, alone in its folder: Spark puts that folder first on the path of the driver."""
