import { ProtocolError } from '../../base/errors.ts';
import { integer, many, record, text, word } from '../../protocol/codec.ts';
import { decoderOf, encoderOf, rootName } from '../../protocol/xml.ts';

/** The XML documents of the S3 API that the server reads and writes. */

/** The id of a multipart upload that was begun. @throws ProtocolError */
export const decodeBegunUpload = decoderOf('InitiateMultipartUploadResult', record({ uploadId: ['UploadId', word] }));

/** The result of a completed multipart upload. @throws ProtocolError */
export const decodeCompletedUpload = decoderOf('CompleteMultipartUploadResult', record({ etag: ['ETag', word] }));

/** The unfinished multipart uploads of a prefix. @throws ProtocolError */
export const decodeUploads = decoderOf(
  'ListMultipartUploadsResult',
  record({ uploads: ['Upload', many(record({ uploadId: ['UploadId', word] }))] }),
);

/** The list of parts that completes a multipart upload. */
export const encodePartList = encoderOf(
  'CompleteMultipartUpload',
  record({ parts: ['Part', many(record({ number: ['PartNumber', integer], etag: ['ETag', text] }))] }),
);

const decodeError = decoderOf('Error', record({ code: ['Code', word] }));

/** The code of an error document; null for any other body, such as the page of a proxy. */
export function errorCodeIn(body: string): string | null {
  try {
    return rootName(body) === 'Error' ? decodeError(body).code : null;
  } catch (error) {
    if (error instanceof ProtocolError) return null;
    throw error;
  }
}
