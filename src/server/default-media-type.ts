import { extensionOf } from './list-page.ts';

/** The media type of a file whose creator gave none (docs/service.md 5.4). */
export function mediaTypeOf(name: string, given: string | undefined): string {
  const said = shortMediaType(given?.trim()) ?? '';
  return said === '' ? (BY_EXTENSION[extensionOf(name)] ?? FALLBACK) : said;
}

/** A media type as stored in a row, whose length is limited. */
export function shortMediaType(given: string | undefined): string | undefined {
  return given !== undefined && given.length > MEDIA_TYPE_CHARS_MAX ? FALLBACK : given;
}

const FALLBACK = 'application/octet-stream';
const MEDIA_TYPE_CHARS_MAX = 255;

const BY_EXTENSION: Readonly<Record<string, string>> = {
  css: 'text/css',
  csv: 'text/csv',
  gif: 'image/gif',
  html: 'text/html',
  jpeg: 'image/jpeg',
  jpg: 'image/jpeg',
  json: 'application/json',
  md: 'text/markdown',
  mp3: 'audio/mpeg',
  mp4: 'video/mp4',
  pdf: 'application/pdf',
  png: 'image/png',
  svg: 'image/svg+xml',
  txt: 'text/plain',
  xml: 'application/xml',
  zip: 'application/zip',
};
