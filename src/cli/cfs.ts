#!/usr/bin/env node
import { createRequire } from 'node:module';

/** `cfs` as an ES module: `cfs-main.ts` in one CommonJS file, which starts faster (ADR 23). */
createRequire(import.meta.url)('./cfs.cjs');
