"""Why a planning step did nothing about something that it might have been about: searched only where `explain` asks."""
