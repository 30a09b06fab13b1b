import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { saxesParser } from '../../src/protocol/saxes-parser.ts';

setFlagsFromString('--allow-natives-syntax');
setFlagsFromString('--expose-gc');
const isFast: (value: object) => boolean = runInNewContext('(value) => %HasFastProperties(value)');
const collectGarbage: () => void = runInNewContext('gc');

const LISTENERS = ['error', 'doctype', 'xmldecl', 'opentagstart', 'opentag', 'closetag', 'text', 'cdata'] as const;

test('every parser is one that V8 keeps fast, also after the first few and after a collection', () => {
  const fast = Array.from({ length: 10 }, () => {
    const parser = saxesParser();
    for (const name of LISTENERS) parser.on(name, () => {});
    parser.write('<a b="c">d</a>').close();
    // What V8 knows of the shape of a parser goes with the last one: the next has to find its way again.
    collectGarbage();
    return isFast(parser);
  });

  expect(fast).toEqual(fast.map(() => true));
});

test('a listener hears of what it listens to', () => {
  const heard = new Set<string>();
  const parser = saxesParser();
  for (const name of LISTENERS) parser.on(name, () => void heard.add(name));
  parser.write('<?xml version="1.0"?><!DOCTYPE a><a>b<![CDATA[c]]></a><').close();

  expect([...heard].sort()).toEqual([...LISTENERS].sort());
});
