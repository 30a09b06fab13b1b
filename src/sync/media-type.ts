/**
 * The media type of a new file, by the extension of its name. The service offers previews by it, and makes thumbnails of `image/jpeg` only
 * (docs/service.md 6.6). The service decides about other extensions.
 */
const MEDIA_TYPES: ReadonlyMap<string, string> = new Map([
  ['csv', 'text/csv'],
  ['css', 'text/css'],
  ['gif', 'image/gif'],
  ['gz', 'application/gzip'],
  ['htm', 'text/html'],
  ['html', 'text/html'],
  ['jpeg', 'image/jpeg'],
  ['jpg', 'image/jpeg'],
  ['js', 'text/javascript'],
  ['json', 'application/json'],
  ['md', 'text/markdown'],
  ['mp3', 'audio/mpeg'],
  ['mp4', 'video/mp4'],
  ['pdf', 'application/pdf'],
  ['png', 'image/png'],
  ['svg', 'image/svg+xml'],
  ['tar', 'application/x-tar'],
  ['txt', 'text/plain'],
  ['webp', 'image/webp'],
  ['xml', 'application/xml'],
  ['zip', 'application/zip'],
]);

/** The service has no symlinks. A symlink is stored as a file of this type, whose bytes are its target. */
export const SYMLINK_MEDIA_TYPE = 'inode/symlink';

const UNKNOWN_MEDIA_TYPE = 'application/octet-stream';

export function mediaTypeOf(fileName: string): string {
  const dot = fileName.lastIndexOf('.');
  if (dot <= 0) return UNKNOWN_MEDIA_TYPE;
  return MEDIA_TYPES.get(fileName.slice(dot + 1).toLowerCase()) ?? UNKNOWN_MEDIA_TYPE;
}
