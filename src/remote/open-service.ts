import type { RemoteService } from './contract.ts';
import { HttpService, type HttpServiceOptions } from './http/http-service.ts';

export type ServiceOptions = HttpServiceOptions;

/** The service of an account. The one place that chooses an implementation of the contract; it sends no request. */
export function openService(options: ServiceOptions): RemoteService {
  return new HttpService(options);
}
