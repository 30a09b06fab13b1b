import { readFileSync } from 'node:fs';

/** `0.1.0 (Node 24.21.0)`: the Debian package brings its own Node, whose security releases make new versions of the package. */
export function versionWithNode(): string {
  return `${programVersion()} (Node ${process.versions.node})`;
}

/** The version of this program, from the package it is in. That of the Debian package has a revision: `0.1.0-2`. */
export function programVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
