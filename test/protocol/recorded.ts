import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as messages from '../../src/protocol/messages.ts';
import type { DecodeDocument } from '../../src/protocol/xml.ts';

/** One of the documents written by hand from the facts: test/protocol/recorded/NAME.xml. */
export function recorded(name: string): string {
  return readFileSync(fileURLToPath(new URL(`./recorded/${name}.xml`, import.meta.url)), 'utf8');
}

interface Document {
  readonly name: string;
  readonly decode: DecodeDocument<unknown>;
  readonly encode: (document: never) => string;
}

/** Every recorded document, with the two functions for its kind. */
export const DOCUMENTS: readonly Document[] = [
  { name: 'app-authorization', decode: messages.decodeAppAuthorization, encode: messages.encodeAppAuthorization },
  { name: 'token-auth-request', decode: messages.decodeTokenAuthRequest, encode: messages.encodeTokenAuthRequest },
  { name: 'auth-request', decode: messages.decodeAuthRequest, encode: messages.encodeAuthRequest },
  { name: 'authorization', decode: messages.decodeAuthorization, encode: messages.encodeAuthorization },
  { name: 'user', decode: messages.decodeUser, encode: messages.encodeUser },
  { name: 'folder', decode: messages.decodeFolder, encode: messages.encodeFolder },
  { name: 'folder-shared', decode: messages.decodeFolder, encode: messages.encodeFolder },
  { name: 'new-folder', decode: messages.decodeNewFolder, encode: messages.encodeNewFolder },
  { name: 'folder-update', decode: messages.decodeFolderUpdate, encode: messages.encodeFolderUpdate },
  { name: 'folder-update-whole', decode: messages.decodeFolderUpdate, encode: messages.encodeFolderUpdate },
  { name: 'sync-folder', decode: messages.decodeSyncFolder, encode: messages.encodeSyncFolder },
  ...['folder', 'stubs', 'empty', 'sync-folders', 'workspaces', 'albums', 'names'].map((kind) => ({
    name: `contents-${kind}`,
    decode: messages.decodeCollectionContents,
    encode: messages.encodeCollectionContents,
  })),
  { name: 'file', decode: messages.decodeFile, encode: messages.encodeFile },
  { name: 'new-file', decode: messages.decodeNewFile, encode: messages.encodeNewFile },
  { name: 'new-file-without-type', decode: messages.decodeNewFile, encode: messages.encodeNewFile },
  { name: 'file-update', decode: messages.decodeFileUpdate, encode: messages.encodeFileUpdate },
  { name: 'file-update-link', decode: messages.decodeFileUpdate, encode: messages.encodeFileUpdate },
  { name: 'file-copy', decode: messages.decodeFileCopy, encode: messages.encodeFileCopy },
  { name: 'file-versions', decode: messages.decodeFileVersions, encode: messages.encodeFileVersions },
  { name: 'file-version', decode: messages.decodeFileVersion, encode: messages.encodeFileVersion },
  { name: 'file-version-incomplete', decode: messages.decodeFileVersion, encode: messages.encodeFileVersion },
  { name: 'workspace', decode: messages.decodeWorkspace, encode: messages.encodeWorkspace },
  { name: 'workspace-update', decode: messages.decodeWorkspaceUpdate, encode: messages.encodeWorkspaceUpdate },
  { name: 'album', decode: messages.decodeAlbum, encode: messages.encodeAlbum },
  { name: 'received-shares', decode: messages.decodeReceivedShares, encode: messages.encodeReceivedShares },
  { name: 'received-share', decode: messages.decodeReceivedShare, encode: messages.encodeReceivedShare },
  { name: 'contact', decode: messages.decodeContact, encode: messages.encodeContact },
];
