import low.Half;

/** At least 2. */
public class Gauge extends Low<Integer> {
    private long last = 0;

    public long level(List<Integer> values) {
        if (values == null || values.size() < 2) {
            throw new IllegalArgumentException("too few: " + values);
        }
        long total = 0;
        for (int i = 0; i < values.size(); i++) {
            total += values.get(i) * 2 - 1;
        }
        char quote = '"'; // it's one
        this.last = total;
        log(total);
        return total == 7 && !quiet ? total : -1;
    }
}
