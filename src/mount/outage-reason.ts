import { type CertificateFault, certificateFaultOf } from '../remote/certificate-failure.ts';
import { proxyFailureOf } from '../remote/proxy-failure.ts';
import { StrangeNetworkError } from '../remote/strange-network.ts';
import type { ServiceRoute } from './service-route.ts';

const FAULTS: Readonly<Record<CertificateFault, string>> = {
  expired: "the service's certificate has expired",
  'not-yet-valid': "the service's certificate is not valid yet",
  'wrong-host': "the service's certificate is for another host name",
  'unknown-authority': "the service's certificate comes from an authority that this system does not trust",
  broken: 'no trusted connection to the service',
};

/**
 * Why the service is not reached, in a few words. The proxy, a network that refuses everything and the certificate are named, because a
 * person can do something about them.
 */
export function outageReason(failure: Error | null, route: Pick<ServiceRoute, 'proxy'>): string {
  const proxy = proxyFailureOf(failure);
  if (proxy !== null) return proxy.message;
  if (failure instanceof StrangeNetworkError) return failure.message;
  const fault = certificateFaultOf(failure);
  if (fault !== null) return `${FAULTS[fault]}: run cfs doctor`;
  // A timeout does not show which part failed.
  return `the service does not answer${route.proxy === null ? '' : ` through the proxy ${route.proxy.address}`}`;
}
