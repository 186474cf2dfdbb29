"""Steps of the schema, each in one file of SQL that runs once, in one transaction."""
