import type * as saxes from 'saxes';
import { commonJs } from '../base/common-js.ts';

const { SaxesParser } = commonJs('saxes') as typeof saxes;

/** Where saxes 6.0.0 keeps its listeners. */
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
 * A parser of saxes, made so that V8 keeps it fast.
 *
 * `on` stores each listener under a computed name. V8 allows an object twelve such properties beyond those that it has made
 * room for, then keeps all of them in a hash table, and a parser that is one is three to seven times slower. How much room
 * there is changes after the first few parsers of a process: six documents were fast and all later ones slow. Properties
 * that were first stored under a literal name do not count; so they are, here. `test/protocol/saxes-parser.test.ts` asks V8.
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
