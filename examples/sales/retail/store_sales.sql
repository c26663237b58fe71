-- What is sold of what in each country, day by day; what comes back counts less.
-- owner: sales@example.org
FOR t IN TIMESERIES('2010-12-01', '2011-02-28')
LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE store_sales PARTITION (day = partition_day)
SELECT
  Country AS store,
  StockCode AS product,
  SUM(Quantity) AS pieces,
  SUM(Quantity * UnitPrice) AS revenue
FROM tickets
WHERE tickets.day = partition_day
GROUP BY Country, StockCode
