#!/usr/bin/env node
import { createRequire } from 'node:module';

/** `cfs-mount` as an ES module: `cfs-mount-main.ts` in one CommonJS file, which starts faster (ADR 23). */
createRequire(import.meta.url)('./cfs-mount.cjs');
