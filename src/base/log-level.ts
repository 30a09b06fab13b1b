// Beside log.ts, which brings the library that writes: whoever only reads a command line starts without it.

export const LOG_LEVELS = ['error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;

export type LogLevel = (typeof LOG_LEVELS)[number];
