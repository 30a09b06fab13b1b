import type { ListingQuery, ResourceId } from '../protocol/endpoints.ts';
import {
  decodeSyncFolder,
  decodeWorkspaceUpdate,
  encodeAlbum,
  encodeCollectionContents,
  encodeContact,
  encodeReceivedShare,
  encodeReceivedShares,
  encodeUser,
  encodeWorkspace,
} from '../protocol/messages.ts';
import { type FolderRow, TEXT_END, type WorkspaceRow } from './database.ts';
import { listingQuery } from './folder-handlers.ts';
import type { Call, HandlerTable, Service } from './handler-table.ts';
import { namedPage, page, sorted } from './listing.ts';
import { notFound, Refusal } from './refusal.ts';
import { checkName, DEFAULT_PAGE } from './repository.ts';

/**
 * Resources of an account, not of a folder: user, top level, workspaces, albums, shares, contacts (docs/service.md 4,
 * 8, 9).
 */
export function accountHandlers(service: Service): HandlerTable {
  const { database, repository, collections, documents } = service;

  const listing = (call: Call<'userCollectionContents'>): string => {
    const { caller, endpoint } = call;
    const query = listingQuery(call.query, repository.pageMax);
    switch (endpoint.collection) {
      case 'folders': {
        const top = repository.listTop(caller, query);
        const entries = top.entries.map((row) => documents.collection(row, 'syncFolder'));
        return encodeCollectionContents(documents.collections({ ...top, entries }));
      }
      case 'workspaces': {
        const range = { start: [caller, ''], end: [caller, TEXT_END] } as {
          start: [string, string];
          end: [string, string];
        };
        const rows = [...database.workspaces.getRange(range)].map(({ value }) => value);
        const workspaces = pageOf(rows, query, repository.pageMax);
        const entries = workspaces.entries.map((row) => documents.workspaceEntry(row));
        return encodeCollectionContents(documents.collections({ ...workspaces, entries }));
      }
      case 'albums': {
        const albums = pageOf(collections.albums(caller), query, repository.pageMax);
        const entries = albums.entries.map((row) => documents.collection(row, 'album'));
        return encodeCollectionContents(documents.collections({ ...albums, entries }));
      }
      case 'publicLinks': {
        // ASSUMED (docs/service.md 8.3): the form of this listing.
        const all = collections.linkedFiles(caller);
        return encodeCollectionContents(documents.contents(pageOf(all, query, DEFAULT_PAGE)));
      }
      case 'recentActivities':
        // ASSUMED (docs/service.md 8.3): only the URL is known.
        return encodeCollectionContents(documents.collections(page([], query.start ?? 0, DEFAULT_PAGE)));
      case 'receivedShares':
        return encodeReceivedShares({ shares: receivedShares(service, caller) });
      default:
        return endpoint.collection satisfies never;
    }
  };

  const workspaceOf = (caller: string, id: ResourceId): WorkspaceRow => {
    const row = id.uid === caller && id.local.length < 64 ? database.workspaces.get([id.uid, id.local]) : undefined;
    if (row === undefined) throw notFound();
    return row;
  };

  const albumOf = (caller: string, id: ResourceId): FolderRow => {
    const row = repository.folder(caller, id);
    if (!collections.isAlbum(row)) throw notFound();
    return row;
  };

  return {
    user: {
      GET: async ({ exchange, endpoint, caller }) => {
        if (endpoint.uid !== null) mustBe(caller, endpoint.uid);
        const row = database.users.get(caller);
        if (row === undefined) throw notFound();
        await exchange.sendXml(200, encodeUser(documents.user(row, repository.usageBytes(caller))));
      },
    },
    userCollection: {
      POST: async ({ exchange, endpoint, caller }) => {
        mustBe(caller, endpoint.uid);
        if (endpoint.collection !== 'folders') throw new Refusal(405, 'Method not allowed');
        const { displayName } = await exchange.decoded(decodeSyncFolder);
        await database.changeTogether(() => repository.createSyncFolder(caller, displayName));
        // Without Location, like the service (docs/service.md 4.3).
        await exchange.sendEmpty(201);
      },
    },
    userCollectionContents: {
      GET: async (call) => {
        mustBe(call.caller, call.endpoint.uid);
        await call.exchange.sendXml(200, listing(call));
      },
    },
    workspace: {
      GET: async ({ exchange, endpoint, caller }) => {
        await exchange.sendXml(200, encodeWorkspace(documents.workspace(workspaceOf(caller, endpoint.id))));
      },
      PUT: async ({ exchange, endpoint, caller }) => {
        const row = workspaceOf(caller, endpoint.id);
        const { displayName } = await exchange.decoded(decodeWorkspaceUpdate);
        const name = displayName ?? row.name;
        checkName(name);
        await database.changeTogether(() => void database.workspaces.put([row.uid, row.local], { ...row, name }));
        await exchange.sendEmpty(204);
      },
    },
    workspaceContents: {
      GET: async ({ exchange, endpoint, query: raw, caller }) => {
        const row = workspaceOf(caller, endpoint.id);
        const query = listingQuery(raw, repository.pageMax);
        const rows = query.type === 'file' ? [] : collections.workspaceFolders(row.uid, row.local);
        const ordered = query.order === null ? rows : sorted(rows, query.order);
        const shown = pageOf(ordered, query, DEFAULT_PAGE);
        const entries = shown.entries.map((folder) => documents.collection(folder, 'syncFolder'));
        await exchange.sendXml(200, encodeCollectionContents(documents.collections({ ...shown, entries })));
      },
    },
    album: {
      GET: async ({ exchange, endpoint, caller }) => {
        await exchange.sendXml(200, encodeAlbum(documents.album(albumOf(caller, endpoint.id))));
      },
    },
    albumContents: {
      GET: async ({ exchange, endpoint, query, caller }) => {
        const files = repository.list(albumOf(caller, endpoint.id), {
          ...listingQuery(query, repository.pageMax),
          type: 'file',
        });
        await exchange.sendXml(200, encodeCollectionContents(documents.contents(files)));
      },
    },
    receivedShare: {
      GET: async ({ exchange, endpoint, caller }) => {
        mustBe(caller, endpoint.uid);
        const share = database.shares.get([caller, endpoint.id.uid, endpoint.id.local]);
        const row = share === undefined ? undefined : database.resources.get([endpoint.id.uid, endpoint.id.local]);
        if (share === undefined || row?.kind !== 'folder') throw notFound();
        await exchange.sendXml(200, encodeReceivedShare(documents.receivedShare(caller, row, share)));
      },
    },
    contact: {
      GET: async ({ exchange, endpoint, caller }) => {
        mustBe(caller, endpoint.uid);
        const other = areAcquainted(service, caller, endpoint.contact)
          ? database.users.get(endpoint.contact)
          : undefined;
        if (other === undefined) throw notFound();
        const [firstName = '', ...rest] = other.nickname.split(' ');
        const contact = { primaryEmailAddress: other.email, firstName, lastName: rest.join(' ') };
        await exchange.sendXml(200, encodeContact(contact));
      },
    },
  };
}

/** URLs of another user and of no user get the same response. */
function mustBe(caller: string, uid: string): void {
  if (caller !== uid) throw notFound();
}

function pageOf<T extends { readonly name: string }>(all: readonly T[], query: ListingQuery, maxDefault: number) {
  return namedPage(all, query.start ?? 0, query.max ?? maxDefault);
}

function receivedShares(service: Service, caller: string) {
  const { database, documents } = service;
  const range = { start: [caller, '', ''], end: [caller, TEXT_END, ''] } as Triples;
  return [...database.shares.getRange(range)].flatMap(({ key: [, owner, local], value }) => {
    const row = database.resources.get([owner, local]);
    return row?.kind === 'folder' ? [documents.receivedShare(caller, row, value)] : [];
  });
}

/** Whether one of the two shares a folder with the other: only then may they see each other's names. */
function areAcquainted(service: Service, caller: string, other: string): boolean {
  const between = (receiver: string, owner: string): boolean => {
    const range = { start: [receiver, owner, ''], end: [receiver, owner, TEXT_END] } as Triples;
    return service.database.shares.getKeysCount(range) > 0;
  };
  return between(caller, other) || between(other, caller);
}

type Triples = { start: [string, string, string]; end: [string, string, string] };
