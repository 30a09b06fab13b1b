/**
 * The service's refusals: an HTML status page with the message in `<h3>` and no error code (docs/service.md 2.4, "Error
 * body").
 */

/** Limit of the part of a page that is searched. */
const PAGE_CHARS_MAX = 16 * 1024;

/** The service's status page for `message`. */
export function errorPage(status: number, message: string): string {
  const section = `sec10.${Math.floor(status / 100)}.${(status % 100) + 1}`;
  const rfc = `http://www.w3.org/Protocols/rfc2616/rfc2616-sec10.html#${section}`;
  return (
    `<html><head><title>Status page</title></head><body><h3>${escaped(message)}</h3>` +
    `<p>You can get technical details <a href="${rfc}">here</a>.<br>` +
    'Please continue your visit at our <a href="/">home page</a>.</p></body></html>'
  );
}

/** The message of a status page; null if there is none. */
export function errorPageMessage(body: string): string | null {
  // The first non-empty single-line `<h3>`: other clients search for the same (docs/service.md 13.3).
  for (const match of body.slice(0, PAGE_CHARS_MAX).matchAll(/<h3>([^\r\n<]*)<\/h3>/gi)) {
    const message = unescaped(match[1] as string).trim();
    if (message !== '') return message;
  }
  return null;
}

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" };

function escaped(text: string): string {
  // Replace line breaks: clients search for the message within one line.
  return text
    .replace(/\s+/g, ' ')
    .replace(/[&<>"']/g, (character) => `&${Object.keys(ENTITIES).find((name) => ENTITIES[name] === character)};`);
}

function unescaped(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => ENTITIES[name] as string);
}
