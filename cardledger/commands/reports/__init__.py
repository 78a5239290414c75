"""`cardledger report`: what finance reads, as a table, CSV, JSON, xlsx or Parquet."""
