"""The parameter server: one process a shard, tables of named arrays, clients that pull and push."""
