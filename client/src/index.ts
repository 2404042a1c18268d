/** Client for Tidemark. {@link EventLogger} writes events in the background, {@link EventReader} reads them. */
export { QueueInUse } from './disk-queue.ts';
export { EventLogger, type EventLoggerOptions, type LoggerStats, type LogOptions } from './event-logger.ts';
export {
  type Bucket,
  EventReader,
  type EventReaderOptions,
  type EventsQuery,
  type SeriesQuery,
  type StoredEvent,
} from './event-reader.ts';
export { type JsonObject, TidemarkError } from './tidemark-error.ts';
