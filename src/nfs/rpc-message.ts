import { XdrError, XdrReader, XdrWriter } from './xdr.ts';

/** The messages of ONC RPC version 2 (RFC 5531). */

const CALL = 0;
const REPLY = 1;
const RPC_VERSION = 2;
const MSG_ACCEPTED = 0;
const MSG_DENIED = 1;
const RPC_MISMATCH = 0;
const AUTH_NONE = 0;
const AUTH_SYS = 1;
const AUTH_BYTES_MAX = 400;
const MACHINE_NAME_BYTES_MAX = 255;
const GROUPS_MAX = 16;
/** The user of a call without credentials. */
const ANONYMOUS = 65534;

/** accept_stat */
export const ACCEPT = {
  success: 0,
  programUnavailable: 1,
  programMismatch: 2,
  procedureUnavailable: 3,
  garbageArguments: 4,
  systemError: 5,
} as const;

/** The caller, by its own claim: AUTH_SYS proves nothing. */
export interface RpcCaller {
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups. */
  readonly gids: readonly number[];
}

export interface RpcCall {
  readonly xid: number;
  readonly rpcVersion: number;
  readonly program: number;
  readonly version: number;
  readonly procedure: number;
  readonly caller: RpcCaller;
  readonly args: XdrReader;
}

/** @throws XdrError for what is no call: no reply is possible */
export function parseCall(record: Buffer): RpcCall {
  const reader = new XdrReader(record);
  const xid = reader.u32();
  if (reader.u32() !== CALL) throw new XdrError('a message that is no call');
  const [rpcVersion, program, version, procedure] = [reader.u32(), reader.u32(), reader.u32(), reader.u32()];
  const caller = callerOf(reader.u32(), reader.opaque(AUTH_BYTES_MAX));
  reader.u32(); // the verifier's flavor
  reader.skipOpaque(AUTH_BYTES_MAX);
  return { xid, rpcVersion, program, version, procedure, caller, args: reader };
}

/** authsys_parms (RFC 5531, appendix A). */
function callerOf(flavor: number, body: Buffer): RpcCaller {
  if (flavor === AUTH_NONE) return { uid: ANONYMOUS, gid: ANONYMOUS, gids: [] };
  if (flavor !== AUTH_SYS) throw new XdrError(`credentials of an unknown flavor: ${flavor}`);
  const reader = new XdrReader(body);
  reader.u32(); // a stamp of the caller
  reader.skipOpaque(MACHINE_NAME_BYTES_MAX);
  const [uid, gid, count] = [reader.u32(), reader.u32(), reader.u32()];
  if (count > GROUPS_MAX) throw new XdrError(`${count} groups`);
  const gids: number[] = [];
  for (let group = 0; group < count; group++) gids.push(reader.u32());
  return { uid, gid, gids };
}

/** A call without credentials and arguments. */
export function callHeader(xid: number, program: number, version: number, procedure: number): XdrWriter {
  const writer = new XdrWriter().u32(xid).u32(CALL).u32(RPC_VERSION).u32(program).u32(version).u32(procedure);
  return writer.u32(AUTH_NONE).u32(0).u32(AUTH_NONE).u32(0);
}

/** The reply to a call that was carried out: `body` follows. */
export function replyHeader(xid: number): XdrWriter {
  return accepted(xid, ACCEPT.success);
}

/** The reply to a call that could not be carried out. */
export function refusal(call: RpcCall, status: number, supportedVersion = 0): Buffer {
  const writer = accepted(call.xid, status);
  if (status === ACCEPT.programMismatch) writer.u32(supportedVersion).u32(supportedVersion);
  return writer.done();
}

export function isSupportedRpc({ rpcVersion }: RpcCall): boolean {
  return rpcVersion === RPC_VERSION;
}

export function rpcMismatch({ xid }: RpcCall): Buffer {
  return new XdrWriter().u32(xid).u32(REPLY).u32(MSG_DENIED).u32(RPC_MISMATCH).u32(RPC_VERSION).u32(RPC_VERSION).done();
}

function accepted(xid: number, status: number): XdrWriter {
  return new XdrWriter(64).u32(xid).u32(REPLY).u32(MSG_ACCEPTED).u32(AUTH_NONE).u32(0).u32(status);
}
