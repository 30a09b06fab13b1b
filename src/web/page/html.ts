import htm from 'htm';
import { type ComponentChild, h } from 'preact';

/** Markup of a view. Every element must be closed; text and attributes are escaped by Preact. */
export const html = htm.bind(h) as (strings: TemplateStringsArray, ...values: readonly unknown[]) => ComponentChild;

export type View = ComponentChild;
