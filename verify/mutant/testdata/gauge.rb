require "low"

# at least 2
class Gauge < Low
  attr_reader :last

  def level(values, most = 9)
    return nil if values.nil?
    if values.empty? || values.length < 2
      raise ArgumentError, "too few: #{values["x"] || 'none'}"
    end
    total = 0
    values.each { |v| total += v * 2 - 1 }
    clean = name.gsub(/[#"]+/, '')
    @last = total
    log(total) unless clean == 'none'
    total > most and !@quiet
  end
end
