// Imported before the suite by the ways to mount that are slower by design: one way with 10,000 entries in a folder is enough.
process.env.CFS_CONFORMANCE_ENTRIES ??= '1000';
