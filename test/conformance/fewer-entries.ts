// Imported before the suite by the ways to mount that are slower by design: one way with thousands of entries in a folder is enough.
// So many are still several replies of the kernel.
process.env.CFS_CONFORMANCE_ENTRIES = '300';
