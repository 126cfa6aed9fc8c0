"""`python -m bucketline.streaming`: the same as `bucketline`."""

from bucketline.streaming.start import main

if __name__ == "__main__":
    main()
