/**
 * Layout of what is stored (`record-codec`, `row-key`, block maps). A change of it needs a step in `migration`. In a file of its own: the main
 * thread reports it without loading the store.
 */
export const SCHEMA_VERSION = 5;
