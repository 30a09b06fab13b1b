/** The few documents of S3 that are read here: flat, of an authenticated store, and a few hundred bytes long. */

/** The text of the first element of that name; null for none. */
export function elementIn(document: string, name: string): string | null {
  return elementsIn(document, name)[0] ?? null;
}

/** The texts of all elements of that name. */
export function elementsIn(document: string, name: string): readonly string[] {
  const found = document.matchAll(new RegExp(`<${name}(?:\\s[^>]*)?>([^<]*)</${name}>`, 'g'));
  return [...found].map(([, text = '']) => text.replace(/&(lt|gt|amp|quot|apos|#34|#39);/g, unescaped));
}

function unescaped(reference: string): string {
  return CHARACTERS[reference] ?? reference;
}

const CHARACTERS: Readonly<Record<string, string>> = {
  '&lt;': '<',
  '&gt;': '>',
  '&amp;': '&',
  '&quot;': '"',
  '&apos;': "'",
  '&#34;': '"',
  '&#39;': "'",
};

/** The list of parts that completes a multipart upload, numbered from 1. */
export function partList(etags: readonly string[]): string {
  const parts = etags.map(
    (etag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${etag.replaceAll('"', '&quot;')}</ETag></Part>`,
  );
  return `<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`;
}
