import { plainGround } from '../harness/ground.ts';
import { programSuite } from './program-suite.ts';

// The scripts must be right before they can accuse a mount.
programSuite('programs on a plain directory', { open: plainGround, close: (ground) => ground.dispose() });
