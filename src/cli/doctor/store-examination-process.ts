import { type ExaminationDepth, examineStore } from './store-examination.ts';

/** The process that `examineInProcess` starts: a store's directory and how deep, and its answer as JSON. Never run by hand. */

const [, , directory = '', depth = 'structure'] = process.argv;
process.stdout.write(JSON.stringify(await examineStore(directory, depth as ExaminationDepth)));
