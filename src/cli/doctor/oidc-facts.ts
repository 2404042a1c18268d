/** Facts of the OIDC issuer: what the settings lack, and what asking for its document says. */
import pino from 'pino';
import { CALLBACK_PATH, OidcFailure, OidcIssuer, oidcSettings } from '../../accounts/oidc/issuer.ts';
import type { Config } from '../../config.ts';

export interface OidcFacts {
  readonly issuer: string;
  /** The address to register at the issuer. */
  readonly redirectUri: string;
  /** Why sign-in at the issuer is off; null: its document was read, and the clocks agree. */
  readonly problem: string | null;
}

/**
 * Facts of the issuer of OIDC_ISSUER; null without any setting of it.
 * @param now milliseconds since the Unix epoch
 */
export async function oidcFacts(config: Config, now: () => number = Date.now): Promise<OidcFacts | null> {
  const settings = oidcSettings(config);
  if (settings === null) return null;
  const facts = { issuer: config.OIDC_ISSUER, redirectUri: config.PUBLIC_URL + CALLBACK_PATH };
  if (typeof settings === 'string') return { ...facts, problem: settings };
  try {
    await new OidcIssuer({ ...settings, log: pino({ enabled: false }), now }).check();
    return { ...facts, problem: null };
  } catch (error) {
    if (error instanceof OidcFailure) return { ...facts, problem: error.message };
    throw error;
  }
}
