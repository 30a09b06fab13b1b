import type * as saxes from 'saxes';
import { commonJs } from '../base/common-js.ts';

const { SaxesParser } = commonJs('saxes') as typeof saxes;

/** The properties in which saxes 6.0.0 stores its listeners. */
interface ListenerPlaces {
  xmldeclHandler: undefined;
  doctypeHandler: undefined;
  errorHandler: undefined;
  openTagStartHandler: undefined;
  openTagHandler: undefined;
  closeTagHandler: undefined;
  textHandler: undefined;
  cdataHandler: undefined;
}

/**
 * Creates a saxes parser that V8 keeps fast.
 *
 * `on` stores each listener under a computed name. Beyond twelve such properties, V8 turns an object into a hash table,
 * and the parser is then three to seven times slower. The reserved number changes after the first few parsers of a
 * process: six documents were fast and all later ones slow. Properties first stored under a literal name do not count,
 * so this function stores them that way. `test/protocol/saxes-parser.test.ts` checks it with V8.
 */
export function saxesParser(): saxes.SaxesParser {
  const parser = new SaxesParser();
  const places = parser as unknown as ListenerPlaces;
  places.xmldeclHandler = undefined;
  places.doctypeHandler = undefined;
  places.errorHandler = undefined;
  places.openTagStartHandler = undefined;
  places.openTagHandler = undefined;
  places.closeTagHandler = undefined;
  places.textHandler = undefined;
  places.cdataHandler = undefined;
  return parser;
}
