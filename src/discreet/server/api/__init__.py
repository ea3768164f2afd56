"""What programs fetch: requests, responses, routes under ``/v1`` and the OpenAPI document."""
