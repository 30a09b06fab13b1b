// Separate from log.ts, which loads the logging library: parsing a command line does not need it.

export const LOG_LEVELS = ['error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;

export type LogLevel = (typeof LOG_LEVELS)[number];
