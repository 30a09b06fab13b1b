// `npm start [-- DIR]`: brings the clone to a runnable state and mounts the demo account, in one process.
import process from 'node:process';
import { built } from './built.mjs';

await import('./bootstrap.mjs');
process.setSourceMapsEnabled(true);
process.argv = [process.execPath, 'cfs', 'demo', ...process.argv.slice(2)];
await import(built('cli/cfs.js'));
